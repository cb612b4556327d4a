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

/// An address in shared memory: `at` bytes into the block at `offset`.
struct SharedLocation {
  std::int64_t offset = 0;
  std::int64_t bytes = 0;  // of the block
  std::int64_t at = 0;
};

/// Anonymous memory (memfd) that processes share by its file descriptor. The kernel
/// frees it when the last process has closed it. All methods are thread-safe. A forked
/// process cannot allocate blocks.
class SharedMemory : public std::enable_shared_from_this<SharedMemory> {
 public:
  static std::shared_ptr<SharedMemory> make();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  int descriptor() const noexcept { return descriptor_.number(); }

  /// Allocates zeroed memory with its pages mapped in. It is freed when the last owner
  /// releases the block. Throws `IoError` if there is not enough memory.
  Block block(std::int64_t bytes);

  /// The location of an address, or nothing if it is outside all blocks.
  std::optional<SharedLocation> location(const std::byte* data) const;

 private:
  struct Region;
  explicit SharedMemory(Descriptor descriptor);
  void give_back(std::int64_t offset, std::int64_t bytes) noexcept;

  const Descriptor descriptor_;
  const std::uint64_t generation_;
  mutable std::shared_mutex mutex_;
  std::int64_t end_ = 0;                               // of the last block so far
  std::map<const std::byte*, const Region*> regions_;  // by address
};

/// Maps blocks of another process's shared memory on first use. Not thread-safe.
class MappedBlocks {
 public:
  explicit MappedBlocks(int descriptor) : descriptor_(descriptor) {}
  ~MappedBlocks();
  MappedBlocks(const MappedBlocks&) = delete;
  MappedBlocks& operator=(const MappedBlocks&) = delete;

  /// Returns the address of `location` in this process. Many later calls for other
  /// blocks may unmap the block, which makes the pointer invalid.
  std::byte* at(const SharedLocation& location);

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
