#include "millstream/io/file_writer.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <system_error>
#include <utility>

#include "millstream/io/file.h"

namespace millstream {
namespace {

/// With writes of 2 MiB, the kernel may use large pages in the page cache, which are
/// cheaper to read at random.
constexpr std::size_t kBuffer = std::size_t{1} << 21;

/// Opens `path` empty and locked. Returns -1 if that is impossible, or if the file is a
/// symbolic link, has hard links, is not a regular file or belongs to another user.
int open_exclusive(const std::string& path) {
  for (;;) {
    const int descriptor = ::open(
        path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
    if (descriptor < 0) return -1;
    struct stat opened {};
    struct stat named {};
    int failed = ::fstat(descriptor, &opened);
    if (failed == 0 && S_ISREG(opened.st_mode) && opened.st_nlink <= 1 &&
        opened.st_uid == ::geteuid()) {
      do {
        failed = ::flock(descriptor, LOCK_EX);
      } while (failed != 0 && errno == EINTR);
    } else {
      failed = -1;
    }
    // The previous holder of the lock may have renamed or deleted the file.
    const bool is_named = ::lstat(path.c_str(), &named) == 0 &&
                          named.st_dev == opened.st_dev &&
                          named.st_ino == opened.st_ino;
    if (failed == 0 && is_named && ::ftruncate(descriptor, 0) == 0) return descriptor;
    ::close(descriptor);
    if (failed != 0 || is_named) return -1;
  }
}

/// Flushes the folder of `path` to disk, so that a rename survives a crash. It is not
/// an error if the file system cannot do so or if the folder cannot be opened.
void sync_folder_of(const std::filesystem::path& path) {
  const auto folder = path.has_parent_path() ? path.parent_path() : ".";
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return;
  const int code = ::fsync(descriptor) == 0 ? 0 : errno;
  ::close(descriptor);
  if (code != 0 && code != EINVAL)
    throw io_error(code, folder, "cannot be flushed to disk");
}

}  // namespace

FileWriter::FileWriter(std::filesystem::path path, Mode mode) : path_(std::move(path)) {
  std::error_code code;
  if (path_.has_parent_path()) {
    std::filesystem::create_directories(path_.parent_path(), code);
    if (code) throw io_error(code.value(), path_.parent_path(), "cannot be created");
  }
  if (std::filesystem::is_directory(path_, code)) {
    throw io_error(EISDIR, path_, "expected a file");
  }
  std::string name = path_.string() + ".part";
  if (mode == Mode::kExclusive) descriptor_ = open_exclusive(name);
  if (descriptor_ < 0) {
    name += "-XXXXXX";
    descriptor_ = ::mkostemp(name.data(), O_CLOEXEC);
  }
  if (descriptor_ < 0) throw io_error(errno, path_, "cannot be written");
  temporary_ = name;
  buffer_.reserve(kBuffer);
}

FileWriter::~FileWriter() {
  if (descriptor_ < 0) return;
  ::unlink(temporary_.c_str());  // before the lock is released
  ::close(descriptor_);
}

void FileWriter::write(std::span<const std::byte> bytes) {
  size_ += static_cast<std::int64_t>(bytes.size());
  while (!bytes.empty()) {
    const auto part = bytes.first(std::min(bytes.size(), kBuffer - buffer_.size()));
    buffer_.insert(buffer_.end(), part.begin(), part.end());
    bytes = bytes.subspan(part.size());
    if (buffer_.size() == kBuffer) flush();
  }
}

void FileWriter::write(std::string_view characters) {
  write(std::as_bytes(std::span(characters)));
}

void FileWriter::flush() {
  std::span<const std::byte> bytes = buffer_;
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) throw io_error(errno, path_, "cannot be written");
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
  buffer_.clear();
}

void FileWriter::commit() {
  flush();
  ::fchmod(descriptor_, 0644);  // only the temporary file is private
  if (::fdatasync(descriptor_) != 0) throw io_error(errno, path_, "cannot be written");
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) {
    throw io_error(errno, path_, "cannot be renamed into place");
  }
  ::close(std::exchange(descriptor_, -1));
  sync_folder_of(path_);
}

}  // namespace millstream
