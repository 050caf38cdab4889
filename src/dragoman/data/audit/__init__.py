"""What reading did and saw: rows dropped, repaired or odd, and statistics of the usable ones."""
