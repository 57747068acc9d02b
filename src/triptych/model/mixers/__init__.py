"""What mixes along the sequence, beside softmax attention: one idea a file."""
