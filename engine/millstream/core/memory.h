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

/// The alignment that JAX needs to alias a buffer; also the size of a cache line.
inline constexpr std::size_t kAlignment = 64;

/// A block of `kAlignment`-aligned bytes that frees itself.
class Block {
 public:
  Block() = default;
  /// Throws `OutOfMemory`, which says that they were for `what`.
  explicit Block(std::int64_t bytes, const std::string& what = "working memory");

  /// Bytes of somebody else's, there as long as `owner` is.
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

/// A worker's arena: allocation is a bump, `reset` takes everything back at once and
/// keeps the blocks. Belongs to one thread at a time.
class Memory {
 public:
  /// `bytes` bytes, aligned, uninitialised, valid until `reset`.
  std::byte* allocate(std::int64_t bytes);

  /// Space for `count` values of a trivial type.
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

/// This thread's arena, reset for whoever asks: not for use across calls.
Memory& thread_memory();

}  // namespace millstream
