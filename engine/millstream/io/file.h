#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include "millstream/core/error.h"

namespace millstream {

/// An `IoError` with errno `code` and the message "path: what: No such file or
/// directory".
IoError io_error(int code, const std::filesystem::path& path, std::string_view what);

/// Identifies a file and its contents: equal stamps mean the same file, unchanged.
struct FileStamp {
  dev_t device = 0;
  ino_t inode = 0;
  std::int64_t size = 0;
  std::int64_t changed = 0;  // time of the last change, in nanoseconds

  bool operator==(const FileStamp&) const = default;
};

/// A file open for reading. Thread-safe.
class File {
 public:
  /// Throws `IoError` if the file does not exist or is not a regular file, and
  /// `DataError` if it is a folder.
  explicit File(std::filesystem::path path);
  ~File();
  File(File&& other) noexcept;
  File& operator=(File&& other) noexcept;

  const std::filesystem::path& path() const noexcept { return path_; }
  int descriptor() const noexcept { return descriptor_; }
  /// The file as it was when it was opened.
  const FileStamp& stamp() const noexcept { return stamp_; }
  std::int64_t size() const noexcept { return stamp_.size; }
  std::int64_t changed() const noexcept { return stamp_.changed; }
  /// The current size in bytes, or -1 if it cannot be found out.
  std::int64_t size_now() const noexcept;

  /// Fills `to` with the bytes at `offset`. Throws `IoError` if the file ends too
  /// early.
  void read(std::int64_t offset, std::span<std::byte> to) const;

  /// The `count` bytes at `offset`, or fewer if the file ends earlier.
  std::vector<std::byte> bytes(std::int64_t offset, std::int64_t count) const;

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
  FileStamp stamp_;
};

/// Remembers a file without keeping it open.
class FileIdentity {
 public:
  explicit FileIdentity(const std::filesystem::path& path);
  explicit FileIdentity(const File& file);

  /// The file's current size, or -1 if the path names another file or none.
  std::int64_t size_now() const noexcept;

  /// Opens the file again. Throws `IoError` unless it is the same file, unchanged.
  File open() const;

 private:
  std::filesystem::path path_;  // absolute
  FileStamp stamp_;
};

}  // namespace millstream
