#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace millstream {

/// The alignment that JAX needs to use a buffer without a copy; also the size of a
/// cache line.
inline constexpr std::size_t kAlignment = 64;

/// A block of bytes, aligned to `kAlignment`. The destructor frees it.
class Block {
 public:
  Block() = default;
  /// Allocates `bytes` bytes. Throws `OutOfMemory`; its message contains `what`, the
  /// purpose of the memory.
  explicit Block(std::int64_t bytes, const std::string& what = "working memory");

  /// Refers to bytes that `owner` keeps alive; the block shares ownership of `owner`.
  Block(std::byte* data, std::int64_t bytes, std::shared_ptr<const void> owner)
      : data_(data, Free{std::move(owner)}), size_(bytes) {}

  std::byte* data() const noexcept { return data_.get(); }
  std::int64_t size() const noexcept { return size_; }
  bool holds(const std::byte* at) const noexcept {
    return at >= data() && at < data() + size_;
  }

 private:
  struct Free {
    std::shared_ptr<const void> owner;
    void operator()(std::byte* data) const noexcept {
      if (owner == nullptr) ::operator delete (data, std::align_val_t{kAlignment});
    }
  };
  std::unique_ptr<std::byte, Free> data_;
  std::int64_t size_ = 0;
};

/// An arena allocator. `reset` releases all allocations at once and keeps memory for
/// later ones. Only one thread may use it at a time.
class Memory {
 public:
  /// Returns `bytes` aligned, uninitialised bytes, valid until `reset`.
  std::byte* allocate(std::int64_t bytes);

  /// Uninitialised space for `count` values of a trivial type, valid until `reset`.
  template <typename T>
  std::span<T> array(std::int64_t count) {
    static_assert(std::is_trivially_destructible_v<T>);
    auto* data = allocate(count * static_cast<std::int64_t>(sizeof(T)));
    return {reinterpret_cast<T*>(data), static_cast<std::size_t>(count)};
  }

  void reset() noexcept;

 private:
  std::vector<Block> blocks_;
  std::size_t current_ = 0;
  std::int64_t used_ = 0;  // of blocks_[current_]
};

/// This thread's arena. Every call resets it, so pointers into it are valid only until
/// the next call on this thread.
Memory& thread_memory();

}  // namespace millstream
