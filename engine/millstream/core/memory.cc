#include "millstream/core/memory.h"

#include <algorithm>

#include "millstream/core/error.h"

namespace millstream {
namespace {

constexpr std::int64_t kFirstBlock = std::int64_t{1} << 16;

std::int64_t rounded_up(std::int64_t bytes) {
  const auto alignment = static_cast<std::int64_t>(kAlignment);
  return (bytes + alignment - 1) / alignment * alignment;
}

}  // namespace

Block::Block(std::int64_t bytes, const std::string& what) : size_(bytes) {
  if (bytes < 0 || bytes > (std::int64_t{1} << 56)) {
    throw ArgumentError(
        text("cannot allocate ", bytes, " bytes: expected a size from 0 to 2^56"));
  }
  const auto size = static_cast<std::size_t>(std::max<std::int64_t>(bytes, 1));
  data_.reset(static_cast<std::byte*>(
      ::operator new (size, std::align_val_t{kAlignment}, std::nothrow)));
  if (data_ == nullptr) {
    throw OutOfMemory(text("cannot allocate ", bytes, " bytes for ", what,
                           ". Free memory, raise the memory limit (ulimit -v, or the "
                           "container's limit), or use a smaller batch_size= and "
                           "prefetch=."));
  }
}

std::byte* Memory::allocate(std::int64_t bytes) {
  const std::int64_t wanted = rounded_up(std::max<std::int64_t>(bytes, 1));
  while (current_ < blocks_.size() && used_ + wanted > blocks_[current_].size()) {
    ++current_;
    used_ = 0;
  }
  if (current_ == blocks_.size()) {
    const std::int64_t last = blocks_.empty() ? kFirstBlock : blocks_.back().size() * 2;
    blocks_.emplace_back(std::max(wanted, last));
  }
  std::byte* data = blocks_[current_].data() + used_;
  used_ += wanted;
  return data;
}

void Memory::reset() noexcept {
  if (blocks_.size() > 1) {  // keep only the largest
    std::swap(blocks_.front(), blocks_.back());
    blocks_.resize(1);
  }
  current_ = 0;
  used_ = 0;
}

Memory& thread_memory() {
  thread_local Memory memory;
  memory.reset();
  return memory;
}

}  // namespace millstream
