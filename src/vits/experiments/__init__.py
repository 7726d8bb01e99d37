"""The paper's experiments, one module per figure: frozen settings that can be imported, shrunk and tested."""
