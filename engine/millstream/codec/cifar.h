#pragma once

#include <cstdint>
#include <vector>

#include "millstream/io/byte_reader.h"

namespace millstream {

/// Images are 32 by 32 pixels of three bytes, stored plane by plane.
inline constexpr std::int64_t kCifarImage = 3 * 32 * 32;

enum class CifarKind : std::uint8_t { kCifar10, kCifar100 };

/// A batch of CIFAR as Python pickled it: its images stay where they are in the file,
/// unless they are stored as text there, as Python 3 does with protocol 2.
struct CifarBatch {
  std::int64_t images = 0;
  std::int64_t offset = 0;         // of the first image
  std::vector<std::byte> decoded;  // all images, of a batch that stores text
  std::vector<std::uint8_t> labels;
  std::vector<std::uint8_t> coarse_labels;  // of CIFAR-100
};

/// How many values a label, or the coarse one of CIFAR-100, may have.
inline int cifar_classes(CifarKind kind) noexcept {
  return kind == CifarKind::kCifar10 ? 10 : 100;
}
inline constexpr int kCifarCoarse = 20;

/// Reads a pickled batch without running it. Throws `DataError` unless it holds a uint8
/// array of images in C order and as many labels, all of them below the number of
/// classes.
CifarBatch parse_cifar_pickle(ByteReader& reader, CifarKind kind);

/// Bytes of one record of a binary file: the labels, then the image.
inline std::int64_t cifar_labels(CifarKind kind) noexcept {
  return kind == CifarKind::kCifar10 ? 1 : 2;
}
inline std::int64_t cifar_record(CifarKind kind) noexcept {
  return cifar_labels(kind) + kCifarImage;
}

}  // namespace millstream
