"""The charts of a report, drawn by matplotlib and embedded as SVG."""
