#pragma once

#include <nanobind/nanobind.h>

#include <limits>
#include <memory>
#include <optional>
#include <utility>

#include "millstream/ffi/live.h"
#include "millstream/loader/loader.h"
#include "module.h"

namespace millstream::python {

/// A loader and the number under which programs inside of jit find it.
struct ListedLoader {
  explicit ListedLoader(std::shared_ptr<Loader> loader)
      : shared(std::move(loader)), listing(shared) {}

  ~ListedLoader() {
    const GilRelease released;  // a worker may need it to end
    listing.reset();
    shared.reset();
  }

  std::shared_ptr<Loader> shared;
  std::optional<Listing> listing;
};

/// The rows of each field, then the mask, part by part: arrays that share one owner,
/// the batch.
nanobind::list batch_arrays(std::shared_ptr<const Batch> batch, const Layout& layout,
                            std::size_t first_part = 0,
                            std::size_t parts = std::numeric_limits<int>::max());

/// (rows, bytes or values) of what travels beside a batch.
nanobind::list parts_beside(const Batch& batch);

}  // namespace millstream::python
