#include "module.h"

NB_MODULE(_engine, module) {
  namespace python = millstream::python;
  module.doc() = "Millstream's engine.";
  // JAX keeps batches and programs until the process exits.
  nanobind::set_leak_warnings(false);
  python::bind_core(module);
  python::bind_order(module);
  python::bind_source(module);
  python::bind_disk_source(module);
  python::bind_transform(module);
  python::bind_loader(module);
  python::bind_workers(module);
  python::bind_ffi(module);
  python::bind_rows(module);
  python::bind_signals(module);
}
