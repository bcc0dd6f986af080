"""A workshop on one cluster: links that let people in for some hours, a class board, and answers that all share."""
