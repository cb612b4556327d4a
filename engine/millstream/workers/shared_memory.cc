#include "millstream/workers/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <utility>

#include "millstream/core/error.h"
#include "millstream/parallel/process.h"

namespace millstream {
namespace {

/// How many blocks a worker process keeps mapped: more than a loader uses at once.
constexpr std::size_t kMaps = 256;

[[noreturn]] void fail(int code, const char* what, std::int64_t bytes) {
  throw IoError(code, {.file = "shared memory",
                       .text = text(what, " ", bytes, " bytes: ", strerror(code))});
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
        data(mapped(memory->descriptor(), offset, bytes)) {
    const std::unique_lock lock(memory->mutex_);
    memory->regions_.emplace(data, this);
  }
  ~Region() {
    if (memory->generation_ != fork_generation()) {
      munmap(data, static_cast<std::size_t>(bytes));
      return;  // the parent process still uses the bytes
    }
    {
      const std::unique_lock lock(memory->mutex_);
      memory->regions_.erase(data);
    }
    munmap(data, static_cast<std::size_t>(bytes));
    memory->give_back(offset, bytes);
  }
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;

  const std::shared_ptr<SharedMemory> memory;
  const std::int64_t offset;
  const std::int64_t bytes;
  std::byte* const data;
};

SharedMemory::SharedMemory(Descriptor descriptor)
    : descriptor_(std::move(descriptor)), generation_(fork_generation()) {}

std::shared_ptr<SharedMemory> SharedMemory::make() {
  Descriptor descriptor(memfd_create("millstream", MFD_CLOEXEC));
  if (!descriptor || !descriptor.lift()) fail(errno, "cannot create a file of", 0);
  return std::shared_ptr<SharedMemory>(new SharedMemory(std::move(descriptor)));
}

void SharedMemory::give_back(std::int64_t offset, std::int64_t bytes) noexcept {
  // Safe even if a worker process still has it mapped, because offsets are never
  // reused.
  fallocate(descriptor(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset, bytes);
}

Block SharedMemory::block(std::int64_t bytes) {
  if (generation_ != fork_generation()) {
    throw ArgumentError(
        "a forked process cannot allocate from the shared memory of its parent "
        "process");
  }
  if (bytes < 0 || bytes > (std::int64_t{1} << 56)) {
    throw ArgumentError(text("a block cannot have ", bytes, " bytes"));
  }
  const std::int64_t page = sysconf(_SC_PAGESIZE);
  const std::int64_t size = (std::max<std::int64_t>(bytes, 1) + page - 1) / page * page;
  // Otherwise the kernel would try, and kill processes to get the memory.
  if (size / page > sysconf(_SC_PHYS_PAGES)) fail(ENOMEM, "cannot allocate", size);
  std::int64_t offset;
  {
    const std::unique_lock lock(mutex_);
    offset = end_;
    end_ += size;
  }
  // Allocates now, because a lack of memory at the first access would raise SIGBUS.
  while (fallocate(descriptor(), 0, offset, size) != 0) {
    if (errno != EINTR) fail(errno, "cannot allocate", size);
  }
  try {
    auto region = std::make_shared<Region>(shared_from_this(), offset, size);
    std::byte* data = region->data;
    return {data, bytes, std::move(region)};
  } catch (...) {
    give_back(offset, size);
    throw;
  }
}

std::optional<SharedLocation> SharedMemory::location(const std::byte* data) const {
  const std::shared_lock lock(mutex_);
  auto found = regions_.upper_bound(data);
  if (found == regions_.begin()) return std::nullopt;
  const Region& region = *(--found)->second;
  const std::int64_t at = data - region.data;
  if (at >= region.bytes) return std::nullopt;
  return SharedLocation{region.offset, region.bytes, at};
}

MappedBlocks::~MappedBlocks() {
  for (const auto& [offset, block] : blocks_) {
    munmap(block.data, static_cast<std::size_t>(block.bytes));
  }
}

std::byte* MappedBlocks::at(const SharedLocation& location) {
  auto found = blocks_.find(location.offset);
  if (found == blocks_.end()) {
    const Mapped block{mapped(descriptor_, location.offset, location.bytes),
                       location.bytes, 0};
    found = blocks_.emplace(location.offset, block).first;
  }
  found->second.used = ++clock_;
  std::byte* data = found->second.data + location.at;
  if (blocks_.size() > kMaps) {
    const auto oldest = std::ranges::min_element(
        blocks_, {}, [](const auto& entry) { return entry.second.used; });
    munmap(oldest->second.data, static_cast<std::size_t>(oldest->second.bytes));
    blocks_.erase(oldest);
  }
  return data;
}

}  // namespace millstream
