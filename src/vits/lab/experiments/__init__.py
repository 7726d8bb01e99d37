"""The paper's experiments, one module per figure or table: frozen settings that can be imported, shrunk and tested."""
