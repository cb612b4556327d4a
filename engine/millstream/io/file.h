#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include "millstream/core/error.h"

namespace millstream {

/// An `IoError` of errno `code`: "path: what: No such file or directory".
IoError io_error(int code, const std::filesystem::path& path, std::string_view what);

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
  /// Bytes now, or -1 where the system does not say.
  std::int64_t size_now() const noexcept;

  /// Fills `to` from `offset`. Throws `IoError` if the file ends before that.
  void read(std::int64_t offset, std::span<std::byte> to) const;

  /// The `count` bytes at `offset`, or those that there are.
  std::vector<std::byte> bytes(std::int64_t offset, std::int64_t count) const;

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
  std::int64_t size_ = 0;
  std::int64_t changed_ = 0;
};

/// Which file bears a name, to see later how long it is without holding it open.
class FileIdentity {
 public:
  FileIdentity() = default;
  explicit FileIdentity(const std::filesystem::path& path);

  /// Its size now, or -1 where the name is that of another file, or of none.
  std::int64_t size_now() const noexcept;

 private:
  std::filesystem::path path_;  // from the root: the process may change its folder
  dev_t device_ = 0;
  ino_t inode_ = 0;
};

}  // namespace millstream
