#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

#include "millstream/io/file.h"
#include "millstream/io/guard.h"

namespace millstream {

/// Bytes of a file that somebody else mapped and keeps mapped. Any number of threads
/// may copy at once.
class BorrowedMap {
 public:
  /// `range` begins at `offset` of the file.
  BorrowedMap(std::filesystem::path path, MappedRange range, std::int64_t offset);

  /// Runs `copy`, which reads the range, as `guarded` does. Throws `IoError` naming the
  /// file if it was cut.
  template <typename Copy>
  void read(Copy&& copy) const {
    check(guarded(std::span(&range_, 1), copy));
  }

 private:
  void check(const std::byte* fault) const;

  std::filesystem::path path_;
  MappedRange range_;
  std::int64_t offset_;
  FileIdentity identity_;
};

}  // namespace millstream
