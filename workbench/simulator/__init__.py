"""What a trial would take: Plans played on pools, closed forms over whole spaces, and the fit to a real machine."""
