"""Looking inside: views of a run as plain records, a page in the browser on loopback, and one-file pages."""
