#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>
#include <vector>

namespace millstream {

/// Writes a temporary file in the same folder. `commit` renames it, so no reader ever
/// sees an incomplete file, and an existing file is replaced atomically. Without
/// `commit`, the destructor deletes the temporary file. Only one thread may use a
/// writer.
class FileWriter {
 public:
  enum class Mode : std::uint8_t {
    kShared,  // others may write the same file at the same time; the last commit wins
    kExclusive,  // other exclusive writers wait until this one is destroyed
  };

  /// Creates missing folders. With `kExclusive`, waits until no other thread or process
  /// writes the file, so the file may exist when this returns. Also reuses the
  /// temporary file of a killed process. Falls back to `kShared` if another user owns
  /// the temporary file or the file system has no locks. All methods throw `IoError`.
  explicit FileWriter(std::filesystem::path path, Mode mode = Mode::kShared);
  ~FileWriter();
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;

  void write(std::span<const std::byte> bytes);
  void write(std::string_view characters);
  /// Bytes written so far.
  std::int64_t size() const noexcept { return size_; }

  /// Flushes the file to disk and gives it its final name.
  void commit();

 private:
  void flush();

  std::filesystem::path path_;
  std::filesystem::path temporary_;
  int descriptor_ = -1;
  std::int64_t size_ = 0;
  std::vector<std::byte> buffer_;
};

}  // namespace millstream
