"""What every other folder uses: errors, checked arguments, devices, lazy imports."""
