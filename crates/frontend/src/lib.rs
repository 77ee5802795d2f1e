//! How a host attaches a volume.
