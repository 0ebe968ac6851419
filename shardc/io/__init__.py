"""Files, streams and JSON: what comes in and goes out, whole or not at all."""
