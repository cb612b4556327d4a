#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <thread>

#include "millstream/io/mapped_file.h"

namespace millstream {

/// Evicts a file from the page cache. Works only if no map has touched its pages.
inline void drop(const std::filesystem::path& path) {
  const File file(path);
  ::fdatasync(file.descriptor());
  ::posix_fadvise(file.descriptor(), 0, 0, POSIX_FADV_DONTNEED);
}

/// Waits up to five seconds until the page at `offset` is in the page cache. Returns
/// whether it is.
inline bool soon_cached(const MappedFile& file, std::int64_t offset) {
  for (int k = 0; k < 500; ++k) {
    if (file.cached(offset)) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

}  // namespace millstream
