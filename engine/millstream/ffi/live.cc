#include "millstream/ffi/live.h"

#include <mutex>
#include <shared_mutex>
#include <unordered_map>

#include "millstream/core/error.h"

namespace millstream {
namespace {

struct Table {
  std::shared_mutex mutex;
  std::unordered_map<std::int64_t, std::weak_ptr<Loader>> loaders;
  std::int64_t last = 0;
};

/// Never destroyed: programs may run while the process exits.
Table& table() {
  static Table& live = *new Table;
  return live;
}

}  // namespace

Listing::Listing(const std::shared_ptr<Loader>& loader) {
  Table& live = table();
  const std::unique_lock lock(live.mutex);
  serial_ = ++live.last;
  live.loaders.emplace(serial_, loader);
}

Listing::~Listing() {
  Table& live = table();
  const std::unique_lock lock(live.mutex);
  live.loaders.erase(serial_);
}

std::shared_ptr<Loader> listed_loader(std::int64_t serial) {
  Table& live = table();
  {
    const std::shared_lock lock(live.mutex);
    const auto found = live.loaders.find(serial);
    if (found != live.loaders.end()) {
      if (auto loader = found->second.lock()) return loader;
    }
  }
  throw ArgumentError(text("the DataLoader behind this program (number ", serial,
                           " of this process) is gone: keep a reference to it for as "
                           "long as the program runs"));
}

}  // namespace millstream
