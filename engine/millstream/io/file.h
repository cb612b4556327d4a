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

/// What tells whether a name still stands for the same file with the same contents.
struct FileStamp {
  dev_t device = 0;
  ino_t inode = 0;
  std::int64_t size = 0;
  std::int64_t changed = 0;  // nanoseconds

  bool operator==(const FileStamp&) const = default;
};

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
  /// As it was when it was opened.
  const FileStamp& stamp() const noexcept { return stamp_; }
  std::int64_t size() const noexcept { return stamp_.size; }
  std::int64_t changed() const noexcept { return stamp_.changed; }
  /// Bytes now, or -1 where the system does not say.
  std::int64_t size_now() const noexcept;

  /// Fills `to` from `offset`. Throws `IoError` if the file ends before that.
  void read(std::int64_t offset, std::span<std::byte> to) const;

  /// The `count` bytes at `offset`, or those that there are.
  std::vector<std::byte> bytes(std::int64_t offset, std::int64_t count) const;

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
  FileStamp stamp_;
};

/// Which file a name stands for, to find it again without keeping it open.
class FileIdentity {
 public:
  explicit FileIdentity(const std::filesystem::path& path);
  explicit FileIdentity(const File& file);

  /// Its size now, or -1 where the name is that of another file, or of none.
  std::int64_t size_now() const noexcept;

  /// Opens it again. Throws `IoError` unless it is the same file, unchanged.
  File open() const;

 private:
  std::filesystem::path path_;  // from the root: the process may change its folder
  FileStamp stamp_;
};

}  // namespace millstream
