#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <shared_mutex>

#include "millstream/core/memory.h"
#include "millstream/workers/descriptor.h"

namespace millstream {

/// Where bytes stand in shared memory: in the block at `offset`, `at` bytes into it.
struct Place {
  std::int64_t offset = 0;
  std::int64_t bytes = 0;  // of the block
  std::int64_t at = 0;
};

/// Memory without a name that processes share by its descriptor; it is gone when the
/// last of them is. Any thread may ask for blocks, but none of a forked process.
class SharedMemory : public std::enable_shared_from_this<SharedMemory> {
 public:
  static std::shared_ptr<SharedMemory> make();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  int descriptor() const noexcept { return descriptor_.number(); }

  /// Zeros, with their pages there; given back to the system when it is let go of.
  Block block(std::int64_t bytes);

  /// Where that address is, if it is within a block.
  std::optional<Place> place(const std::byte* data) const;

 private:
  struct Region;
  explicit SharedMemory(Descriptor descriptor);
  void give_back(std::int64_t offset, std::int64_t bytes) noexcept;

  const Descriptor descriptor_;
  const std::uint64_t generation_;
  mutable std::shared_mutex mutex_;
  std::int64_t end_ = 0;                               // of all blocks so far
  std::map<const std::byte*, const Region*> regions_;  // by address
};

/// Blocks of another process's shared memory, mapped when they are first used.
class MappedBlocks {
 public:
  explicit MappedBlocks(int descriptor) : descriptor_(descriptor) {}
  ~MappedBlocks();
  MappedBlocks(const MappedBlocks&) = delete;
  MappedBlocks& operator=(const MappedBlocks&) = delete;

  std::byte* at(const Place& place);

 private:
  struct Mapped {
    std::byte* data = nullptr;
    std::int64_t bytes = 0;
    std::uint64_t used = 0;
  };
  const int descriptor_;
  std::map<std::int64_t, Mapped> blocks_;  // by offset
  std::uint64_t clock_ = 0;
};

}  // namespace millstream
