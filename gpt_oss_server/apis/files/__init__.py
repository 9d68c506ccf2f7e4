"""The files and uploads APIs. Takes forms and JSON; returns records of files, and their bytes."""
