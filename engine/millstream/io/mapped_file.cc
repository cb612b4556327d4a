#include "millstream/io/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>

namespace millstream {
namespace {

const std::int64_t kPage = ::sysconf(_SC_PAGESIZE);

/// A mapped file keeps its descriptor only if its number is below this. The kernel
/// gives out the lowest free number, so thousands of files do not use up all
/// descriptors.
constexpr int kDescriptors = 48;

/// The most files that are mapped at a time. Linux allows 65,530 maps per process by
/// default, and other code needs some of them.
constexpr int kMaps = 16'384;
std::atomic<int> maps = 0;

/// Whether `mincore` tells the truth about a file. For files of other users it reports
/// every page as cached.
bool may_query_cache(const File& file) noexcept {
  struct stat status {};
  return (::fstat(file.descriptor(), &status) == 0 && status.st_uid == ::geteuid()) ||
         ::faccessat(AT_FDCWD, file.path().c_str(), W_OK, AT_EACCESS) == 0;
}

}  // namespace

MappedFile::MappedFile(File file)
    : path_(file.path()), size_(file.size()), identity_(file) {
  install_guard();
  if (size_ == 0) return;
  if (maps.fetch_add(1) >= kMaps) {
    maps.fetch_sub(1);
    return;
  }
  void* data = ::mmap(nullptr, static_cast<std::size_t>(size_), PROT_READ, MAP_SHARED,
                      file.descriptor(), 0);
  if (data == MAP_FAILED) {
    maps.fetch_sub(1);
    throw io_error(errno, path_, "cannot be mapped");
  }
  owned_ = true;
  range_.begin = static_cast<const std::byte*>(data);
  range_.end = range_.begin + size_;
  last_page_ = (size_ - 1) / kPage * kPage;
  may_query_cache_ = may_query_cache(file);
  if (file.descriptor() < kDescriptors) file_ = std::move(file);
}

MappedFile::MappedFile(std::filesystem::path path, MappedRange range,
                       std::int64_t offset)
    : path_(std::move(path)),
      size_(range.end - range.begin),
      range_(range),
      offset_(offset),
      identity_(path_) {
  install_guard();
}

MappedFile::~MappedFile() {
  if (!owned_) return;
  ::munmap(const_cast<std::byte*>(range_.begin), static_cast<std::size_t>(size_));
  maps.fetch_sub(1);
}

void MappedFile::read(std::int64_t offset, std::span<std::byte> to) const {
  if (file_) return file_->read(offset, to);
  if (!is_mapped()) return open().read(offset, to);
  if (to.empty()) return;
  if (static_cast<std::int64_t>(to.size()) > size_ - offset) check(range_.end);
  read([&] { std::memcpy(to.data(), range_.begin + offset, to.size()); });
}

void MappedFile::will_need(std::int64_t offset, std::int64_t bytes) const noexcept {
  const std::int64_t begin = offset / kPage * kPage;
  const std::int64_t end = std::min(offset + bytes, size());
  if (!is_mapped() || begin >= end) return;
  ::madvise(const_cast<std::byte*>(range_.begin) + begin,
            static_cast<std::size_t>(end - begin), MADV_WILLNEED);
}

void MappedFile::advise_random() const noexcept {
  if (!is_mapped()) return;
  ::madvise(const_cast<std::byte*>(range_.begin), static_cast<std::size_t>(size()),
            MADV_RANDOM);
}

bool MappedFile::cached(std::int64_t offset) const noexcept {
  unsigned char page = 1;
  ::mincore(const_cast<std::byte*>(range_.begin) + offset / kPage * kPage, 1, &page);
  return may_query_cache_ && (page & 1) != 0;
}

void MappedFile::check(const std::byte* fault) const {
  const std::int64_t now = file_ ? file_->size_now() : identity_.size_now();
  const std::int64_t end = offset_ + size();
  if (fault == nullptr && (now < 0 || now >= end)) return;
  const std::int64_t at =
      fault != nullptr ? offset_ + (fault - range_.begin) : std::max(now, offset_);
  throw IoError(EIO, {.file = path_.string(),
                      .offset = at,
                      .text = text("can no longer be read: the file had at least ", end,
                                   " bytes when it was mapped and ",
                                   now < 0 ? "no longer exists under that name"
                                           : text("has ", now, " now"))});
}

}  // namespace millstream
