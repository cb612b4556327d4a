#pragma once

#include <memory>

#include "millstream/ffi/live.h"
#include "millstream/loader/loader.h"

namespace millstream::python {

/// A loader and the number under which programs inside of jit find it.
struct ListedLoader {
  explicit ListedLoader(std::shared_ptr<Loader> loader)
      : shared(std::move(loader)), listing(shared) {}

  std::shared_ptr<Loader> shared;
  Listing listing;
};

}  // namespace millstream::python
