"""Views of a run as records, made of a system or a run's folder without server or browser."""
