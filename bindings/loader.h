#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <utility>

#include "millstream/ffi/registry.h"
#include "millstream/loader/loader.h"
#include "module.h"

namespace millstream::python {

/// A loader, and its registration for programs inside jit.
struct RegisteredLoader {
  explicit RegisteredLoader(std::shared_ptr<Loader> loader)
      : shared(std::move(loader)), registration(shared) {
    const auto serial = static_cast<std::uint64_t>(registration->serial());
    number[0] = static_cast<std::uint32_t>(serial);
    number[1] = static_cast<std::uint32_t>(serial >> 32);
  }

  ~RegisteredLoader() {
    const GilRelease released;  // a worker may need the GIL to end
    registration.reset();
    shared.reset();
  }

  std::shared_ptr<Loader> shared;
  std::optional<Registration> registration;
  /// The serial number (low, high). JAX aliases only memory that is aligned to 64
  /// bytes.
  alignas(64) std::uint32_t number[2];
};

/// Arrays over the batch without a copy: each field, then the mask, for one shard after
/// the other. Each array keeps the batch alive.
nanobind::list batch_arrays(std::shared_ptr<const Batch> batch, const Layout& layout,
                            std::size_t first_shard = 0,
                            std::size_t shards = std::numeric_limits<int>::max());

/// A host value as the Python code takes it: the bytes of a pickled value, or a tuple
/// that contains the value.
nanobind::object python_value(const HostValue& value);

/// (row, value) of each host value of a batch.
nanobind::list host_values_of(const Batch& batch);

}  // namespace millstream::python
