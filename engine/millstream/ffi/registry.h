#pragma once

#include <cstdint>
#include <memory>

#include "millstream/loader/loader.h"

namespace millstream {

/// Registers a loader for code inside jit, for the lifetime of this object. Compiled
/// programs hold its number, not the loader. A process never reuses a number.
class Registration {
 public:
  explicit Registration(const std::shared_ptr<Loader>& loader);
  ~Registration();
  Registration(const Registration&) = delete;
  Registration& operator=(const Registration&) = delete;

  std::int64_t serial() const noexcept { return serial_; }

 private:
  std::int64_t serial_;
};

/// Returns the loader with this number. Throws `ArgumentError` if it was destroyed.
/// Thread-safe.
std::shared_ptr<Loader> registered_loader(std::int64_t serial);

}  // namespace millstream
