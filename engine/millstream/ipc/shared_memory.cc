#include "millstream/ipc/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <mutex>

#include "millstream/core/error.h"

namespace millstream {
namespace {

/// Maps that a worker keeps: more than a loader has batches in hand.
constexpr std::size_t kMaps = 256;

[[noreturn]] void fail(int code, const char* what, std::int64_t bytes) {
  throw IoError(code, "shared memory",
                text("shared memory: ", what, " ", bytes, " bytes: ", strerror(code)));
}

std::byte* mapped(int descriptor, std::int64_t offset, std::int64_t bytes) {
  void* data = mmap(nullptr, static_cast<std::size_t>(bytes), PROT_READ | PROT_WRITE,
                    MAP_SHARED, descriptor, offset);
  if (data == MAP_FAILED) fail(errno, "cannot map", bytes);
  return static_cast<std::byte*>(data);
}

}  // namespace

struct SharedMemory::Region {
  Region(std::shared_ptr<SharedMemory> from, std::int64_t first, std::int64_t size)
      : memory(std::move(from)),
        offset(first),
        bytes(size),
        data(mapped(memory->descriptor_, offset, bytes)) {
    const std::unique_lock lock(memory->mutex_);
    memory->regions_.emplace(data, this);
  }
  ~Region() {
    {
      const std::unique_lock lock(memory->mutex_);
      memory->regions_.erase(data);
    }
    munmap(data, static_cast<std::size_t>(bytes));
    // Also where a worker has it mapped still: offsets are never used again.
    fallocate(memory->descriptor_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset,
              bytes);
  }
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;

  const std::shared_ptr<SharedMemory> memory;
  const std::int64_t offset;
  const std::int64_t bytes;
  std::byte* const data;
};

std::shared_ptr<SharedMemory> SharedMemory::make() {
  const int low = memfd_create("millstream", MFD_CLOEXEC);
  if (low < 0) fail(errno, "cannot make", 0);
  // Above the numbers that a worker is given.
  const int descriptor = fcntl(low, F_DUPFD_CLOEXEC, 10);
  const int code = errno;
  close(low);
  if (descriptor < 0) fail(code, "cannot make", 0);
  return std::shared_ptr<SharedMemory>(new SharedMemory(descriptor));
}

SharedMemory::~SharedMemory() { close(descriptor_); }

Block SharedMemory::block(std::int64_t bytes) {
  const std::int64_t page = sysconf(_SC_PAGESIZE);
  const std::int64_t size = (std::max<std::int64_t>(bytes, 1) + page - 1) / page * page;
  std::int64_t offset;
  {
    const std::unique_lock lock(mutex_);
    offset = end_;
    end_ += size;
  }
  // Now and not at the first touch, where lack of memory would be a signal.
  while (fallocate(descriptor_, 0, offset, size) != 0) {
    if (errno != EINTR) fail(errno, "cannot have", size);
  }
  auto region = std::make_shared<Region>(shared_from_this(), offset, size);
  std::byte* data = region->data;
  return {data, bytes, std::move(region)};
}

std::optional<Place> SharedMemory::place(const std::byte* data) const {
  const std::shared_lock lock(mutex_);
  auto found = regions_.upper_bound(data);
  if (found == regions_.begin()) return std::nullopt;
  const Region& region = *(--found)->second;
  const std::int64_t at = data - region.data;
  if (at >= region.bytes) return std::nullopt;
  return Place{region.offset, region.bytes, at};
}

MappedBlocks::~MappedBlocks() {
  for (const auto& [offset, block] : blocks_) {
    munmap(block.data, static_cast<std::size_t>(block.bytes));
  }
}

std::byte* MappedBlocks::at(const Place& place) {
  Mapped& block = blocks_[place.offset];
  if (block.data == nullptr) {
    block.data = mapped(descriptor_, place.offset, place.bytes);
    block.bytes = place.bytes;
  }
  block.used = ++clock_;
  std::byte* data = block.data + place.at;
  if (blocks_.size() > kMaps) {
    const auto oldest = std::ranges::min_element(
        blocks_, {}, [](const auto& entry) { return entry.second.used; });
    munmap(oldest->second.data, static_cast<std::size_t>(oldest->second.bytes));
    blocks_.erase(oldest);
  }
  return data;
}

}  // namespace millstream
