#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>
#include <vector>

namespace millstream {

/// Writes a temporary file in the same folder and renames it when it is complete, so
/// that nobody ever sees half of it; an older file is replaced atomically. Unless
/// `commit` is reached nothing stays behind. Belongs to one thread.
class FileWriter {
 public:
  enum class Mode : std::uint8_t {
    kShared,     // others may write the same file at the same time; the last one stays
    kExclusive,  // others wait until this one is gone; see the constructor
  };

  /// Folders on the way are made. With `kExclusive` this waits until no other thread or
  /// process writes the file, which may exist then, and takes over what a killed one
  /// left. Where that is not possible, because somebody else owns the name or there are
  /// no locks, it is as with `kShared`. Throws `IoError`, as do all functions here.
  explicit FileWriter(std::filesystem::path path, Mode mode = Mode::kShared);
  ~FileWriter();
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;

  void write(std::span<const std::byte> bytes);
  void write(std::string_view characters);
  /// Bytes written so far.
  std::int64_t size() const noexcept { return size_; }

  /// On the disk under its name when this returns.
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
