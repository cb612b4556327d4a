#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <utility>
#include <vector>

#include "millstream/core/error.h"

namespace millstream {

/// An `IoError` of errno `code`: "path: what: No such file or directory".
IoError io_error(int code, const std::filesystem::path& path, std::string_view what);

using FileIdentity = std::pair<std::uint64_t, std::uint64_t>;

/// A file open for reading. Any number of threads may read at once.
class File {
 public:
  /// Throws `IoError` where there is no such file or it is no regular file, `DataError`
  /// where it is a folder.
  explicit File(std::filesystem::path path);
  ~File();
  File(File&& other) noexcept;
  File& operator=(File&& other) noexcept;

  const std::filesystem::path& path() const noexcept { return path_; }
  int descriptor() const noexcept { return descriptor_; }
  /// Bytes, as they were when it was opened.
  std::int64_t size() const noexcept { return size_; }
  /// Nanoseconds of the last change, as it was when it was opened.
  std::int64_t changed() const noexcept { return changed_; }
  /// Device and inode: no two files have the same while both are open or mapped.
  const FileIdentity& identity() const noexcept { return identity_; }

  /// Fills `to` from `offset`. Throws `IoError` if the file ends before that.
  void read(std::int64_t offset, std::span<std::byte> to) const;

  /// The `count` bytes at `offset`, or those that there are.
  std::vector<std::byte> bytes(std::int64_t offset, std::int64_t count) const;

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
  std::int64_t size_ = 0;
  std::int64_t changed_ = 0;
  FileIdentity identity_;
};

}  // namespace millstream
