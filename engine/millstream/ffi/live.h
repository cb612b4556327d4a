#pragma once

#include <cstdint>
#include <memory>

#include "millstream/loader/loader.h"

namespace millstream {

/// Names a loader for code inside of jit: compiled programs hold the number, never the
/// loader, and no number is used twice in a process.
class Listing {
 public:
  explicit Listing(const std::shared_ptr<Loader>& loader);
  ~Listing();
  Listing(const Listing&) = delete;
  Listing& operator=(const Listing&) = delete;

  std::int64_t serial() const noexcept { return serial_; }

 private:
  std::int64_t serial_;
};

/// The live loader of that number; throws `ArgumentError` if it is gone.
std::shared_ptr<Loader> listed_loader(std::int64_t serial);

}  // namespace millstream
