#pragma once

#include <cstdint>
#include <vector>

#include "millstream/io/byte_reader.h"

namespace millstream {

/// Bytes of an image: 32 by 32 pixels of three bytes, stored plane by plane.
inline constexpr std::int64_t kCifarImage = 3 * 32 * 32;

enum class CifarKind : std::uint8_t { kCifar10, kCifar100 };

/// A batch of CIFAR that Python pickled. The images stay in the file, unless the file
/// stores them as text, as Python 3 does with protocol 2.
struct CifarBatch {
  std::int64_t images = 0;
  std::int64_t offset = 0;         // of the first image
  std::vector<std::byte> decoded;  // all images, if the file stores text
  std::vector<std::uint8_t> labels;
  std::vector<std::uint8_t> coarse_labels;  // only for CIFAR-100
};

/// The number of classes. `kCifarCoarse` is that of the coarse labels of CIFAR-100.
inline int cifar_classes(CifarKind kind) noexcept {
  return kind == CifarKind::kCifar10 ? 10 : 100;
}
inline constexpr int kCifarCoarse = 20;

/// Parses a pickled batch without running the pickle. Throws `DataError` unless it
/// holds a uint8 array of images in C order and one valid label per image.
CifarBatch parse_cifar_pickle(ByteReader& reader, CifarKind kind);

/// A record of a binary file consists of the labels and then the image. `cifar_labels`
/// is the number of bytes of the labels, `cifar_record` that of the whole record.
inline std::int64_t cifar_labels(CifarKind kind) noexcept {
  return kind == CifarKind::kCifar10 ? 1 : 2;
}
inline std::int64_t cifar_record(CifarKind kind) noexcept {
  return cifar_labels(kind) + kCifarImage;
}

}  // namespace millstream
