"""Plane laminar flows of many shapes, Reynolds numbers, conditions and times."""
