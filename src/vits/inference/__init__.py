"""What every algorithm is built from: posteriors, guards, Newton steps, draws, one posterior per arm."""
