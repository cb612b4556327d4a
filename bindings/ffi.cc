#include "millstream/ffi/handlers.h"
#include "module.h"

namespace millstream::python {

void bind_ffi(nb::module_& module) {
  module.def(
      "handlers",
      [] {
        nb::dict handlers;
        handlers["millstream_batch"] =
            nb::capsule(reinterpret_cast<void*>(batch_in_jit));
        handlers["millstream_batch_later"] =
            nb::capsule(reinterpret_cast<void*>(batch_in_jit_later));
        handlers["millstream_indices"] =
            nb::capsule(reinterpret_cast<void*>(indices_in_jit));
        handlers["millstream_shard"] =
            nb::capsule(reinterpret_cast<void*>(shard_in_jit));
        handlers["millstream_shard_later"] =
            nb::capsule(reinterpret_cast<void*>(shard_in_jit_later));
        handlers["millstream_host_batches"] =
            nb::capsule(reinterpret_cast<void*>(batches_on_host));
        return handlers;
      },
      "Returns the XLA FFI handlers by name.");
}

}  // namespace millstream::python
