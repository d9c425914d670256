"""What a run is told as: terminal, JSON and summaries."""
