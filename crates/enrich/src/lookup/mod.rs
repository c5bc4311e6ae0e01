//! Names by address, in files larger than memory.
