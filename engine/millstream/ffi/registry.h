#pragma once

#include <cstdint>
#include <memory>

#include "millstream/loader/loader.h"

namespace millstream {

/// Registers a loader for code inside jit, for as long as it lives. Compiled programs
/// hold the number, never the loader, and no number is used twice in a process.
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

/// The live loader of that number; throws `ArgumentError` if it is gone.
std::shared_ptr<Loader> registered_loader(std::int64_t serial);

}  // namespace millstream
