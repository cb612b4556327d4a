#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <thread>

#include "millstream/io/mapped_file.h"

namespace millstream {

/// Puts a file out of the page cache; a map may show none of it.
inline void drop(const std::filesystem::path& path) {
  const File file(path);
  ::fdatasync(file.descriptor());
  ::posix_fadvise(file.descriptor(), 0, 0, POSIX_FADV_DONTNEED);
}

/// Whether a byte is in memory soon; reads that were begun take a moment.
inline bool soon_cached(const MappedFile& file, std::int64_t offset) {
  for (int k = 0; k < 500; ++k) {
    if (file.cached(offset)) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

}  // namespace millstream
