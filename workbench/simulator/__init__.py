"""What a trial would take: Plans played on lanes, closed forms over whole spaces, and the fit to a real machine."""
