#include "millstream/io/borrowed_map.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "millstream/core/error.h"

namespace millstream {

BorrowedMap::BorrowedMap(std::filesystem::path path, MappedRange range,
                         std::int64_t offset)
    : path_(std::move(path)), range_(range), offset_(offset), identity_(path_) {
  install_guard();
}

void BorrowedMap::check(const std::byte* fault) const {
  const std::int64_t there = identity_.size_now();
  const std::int64_t end = offset_ + (range_.end - range_.begin);
  if (fault == nullptr && (there < 0 || there >= end)) return;
  const std::int64_t at =
      range_.holds(fault) ? offset_ + (fault - range_.begin) : std::max(there, offset_);
  throw IoError(EIO, path_,
                text(path_.string(), ": offset ", at,
                     " can no longer be read: the file is mapped up to ", end,
                     " bytes and has ", there, " now"));
}

}  // namespace millstream
