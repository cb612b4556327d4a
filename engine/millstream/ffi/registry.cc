#include "millstream/ffi/registry.h"

#include <mutex>
#include <shared_mutex>
#include <unordered_map>

#include "millstream/core/error.h"

namespace millstream {
namespace {

struct Registry {
  std::shared_mutex mutex;
  std::unordered_map<std::int64_t, std::weak_ptr<Loader>> loaders;
  std::int64_t last = 0;
};

/// Never destroyed, because programs may run while the process exits.
Registry& registry() {
  static Registry& only = *new Registry;
  return only;
}

}  // namespace

Registration::Registration(const std::shared_ptr<Loader>& loader) {
  Registry& all = registry();
  const std::unique_lock lock(all.mutex);
  serial_ = ++all.last;
  all.loaders.emplace(serial_, loader);
}

Registration::~Registration() {
  Registry& all = registry();
  const std::unique_lock lock(all.mutex);
  all.loaders.erase(serial_);
}

std::shared_ptr<Loader> registered_loader(std::int64_t serial) {
  Registry& all = registry();
  {
    const std::shared_lock lock(all.mutex);
    const auto found = all.loaders.find(serial);
    if (found != all.loaders.end()) {
      if (auto loader = found->second.lock()) return loader;
    }
  }
  throw ArgumentError(text("the DataLoader behind this program (number ", serial,
                           " of this process) is gone: keep a reference to it for as "
                           "long as the program runs"));
}

}  // namespace millstream
