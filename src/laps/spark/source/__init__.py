"""Reading tracks as rows, live and bounded: from an offset to an offset, each object once."""
