#include "millstream/source/cifar.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "millstream/codec/tar.h"
#include "millstream/core/characters.h"
#include "millstream/core/error.h"
#include "millstream/source/arrays.h"
#include "millstream/source/columns.h"
#include "millstream/source/rearrange.h"
#include "millstream/source/unpack.h"

namespace millstream {
namespace {

/// The largest size of an uncompressed archive. Those of CIFAR are less than a fifth of
/// it.
constexpr std::int64_t kMostArchive = std::int64_t{1} << 30;

const Field kImage = {"image", DType::kUint8, {32, 32, 3}};

/// The range of a file that holds one batch.
struct Batch {
  std::shared_ptr<const MappedFile> file;
  std::int64_t begin = 0;
  std::int64_t size = 0;
  FileName name;
};

Batch whole_file(const std::filesystem::path& path) {
  File file(path);
  const std::int64_t size = file.size();
  return {std::make_shared<const MappedFile>(std::move(file)), 0, size, path.string()};
}

/// An array that owns its bytes.
template <typename Byte>
Array owned(Field field, std::vector<Byte> bytes) {
  const auto owner = std::make_shared<const std::vector<Byte>>(std::move(bytes));
  const std::int64_t row = byte_size(field);
  return {std::move(field), static_cast<std::int64_t>(owner->size()) / row,
          reinterpret_cast<const std::byte*>(owner->data()), row, owner};
}

SharedSource mapped_images(std::vector<MappedArray> arrays) {
  std::vector<MappedColumn> columns;
  columns.emplace_back(kImage, std::move(arrays), RowForm{.stored = Stored::kPlanar});
  return std::make_shared<const ColumnsSource>(std::move(columns));
}

SharedSource images_in_memory(const std::vector<std::byte>& planes) {
  std::vector<std::byte> pixels(planes.size());
  for (std::size_t at = 0; at < planes.size();
       at += static_cast<std::size_t>(kCifarImage)) {
    interleave(planes.data() + at, pixels.data() + at, kImage.shape);
  }
  return std::make_shared<const ArraysSource>(
      std::vector<Array>{owned(kImage, std::move(pixels))});
}

SharedSource pickled(const std::vector<Batch>& batches, CifarKind kind) {
  std::vector<SharedSource> images;
  std::vector<MappedArray> mapped;  // batches after the last one in memory
  std::vector<std::uint8_t> labels;
  std::vector<std::uint8_t> coarse;
  for (const Batch& batch : batches) {
    std::vector<std::byte> bytes(static_cast<std::size_t>(batch.size));
    batch.file->read(batch.begin, bytes);
    ByteReader reader(bytes, batch.name, batch.begin);
    const CifarBatch parsed = parse_cifar_pickle(reader, kind);
    labels.insert(labels.end(), parsed.labels.begin(), parsed.labels.end());
    coarse.insert(coarse.end(), parsed.coarse_labels.begin(),
                  parsed.coarse_labels.end());
    if (parsed.decoded.empty()) {
      mapped.push_back(
          {batch.file, parsed.offset, kCifarImage, parsed.images, batch.name});
      continue;
    }
    if (!mapped.empty()) images.push_back(mapped_images(std::exchange(mapped, {})));
    images.push_back(images_in_memory(parsed.decoded));
  }
  if (!mapped.empty()) images.push_back(mapped_images(std::move(mapped)));
  SharedSource all = images.front();
  if (images.size() > 1) {
    all = std::make_shared<const Concatenated>(std::move(images));
  }
  std::vector<Array> arrays = {
      owned(Field{"label", DType::kUint8, {}}, std::move(labels))};
  if (kind == CifarKind::kCifar100) {
    arrays.push_back(
        owned(Field{"coarse_label", DType::kUint8, {}}, std::move(coarse)));
  }
  return std::make_shared<const Zipped>(std::vector<SharedSource>{
      std::move(all), std::make_shared<const ArraysSource>(std::move(arrays))});
}

SharedSource binary(const std::vector<Batch>& batches, CifarKind kind) {
  const std::int64_t record = cifar_record(kind);
  const auto arrays = [&](std::int64_t offset) {
    std::vector<MappedArray> found;
    for (const Batch& batch : batches) {
      const std::int64_t rest = batch.size % record;
      if (batch.size == 0) {
        throw DataError({.file = batch.name,
                         .offset = batch.begin,
                         .expected = text("records of ", record, " bytes"),
                         .found = "an empty batch"});
      }
      if (rest != 0) {
        throw DataError(
            {.file = batch.name,
             .offset = batch.begin + batch.size - rest,
             .expected = text("whole records of ", record, " bytes"),
             .found = text(rest, " bytes after ", batch.size / record, " records")});
      }
      found.push_back(
          {batch.file, batch.begin + offset, record, batch.size / record, batch.name});
    }
    return found;
  };
  const std::int64_t labels = cifar_labels(kind);
  std::vector<MappedColumn> columns;
  columns.emplace_back(kImage, arrays(labels), RowForm{.stored = Stored::kPlanar});
  columns.emplace_back(Field{"label", DType::kUint8, {}}, arrays(labels - 1),
                       RowForm{.below = cifar_classes(kind)});
  if (kind == CifarKind::kCifar100) {
    columns.emplace_back(Field{"coarse_label", DType::kUint8, {}}, arrays(0),
                         RowForm{.below = kCifarCoarse});
  }
  return std::make_shared<const ColumnsSource>(std::move(columns));
}

SharedSource open_batches(const std::vector<Batch>& batches, CifarKind kind) {
  if (batches.empty()) throw ArgumentError("CIFAR needs at least one batch");
  // A pickle begins with 0x80. A binary batch begins with a label, which is below 100.
  const auto is_pickle = [](const Batch& batch) {
    std::byte first{};
    if (batch.size > 0) batch.file->read(batch.begin, {&first, 1});
    return first == std::byte{0x80};
  };
  const auto kind_of = [](bool pickle) { return pickle ? "pickled" : "binary"; };
  const bool pickles = is_pickle(batches.front());
  for (const Batch& batch : batches) {
    if (is_pickle(batch) == pickles) continue;
    throw DataError({.file = batch.name,
                     .offset = batch.begin,
                     .expected = text("a ", kind_of(pickles), " batch like ",
                                      batches.front().name.str()),
                     .found = text("a ", kind_of(!pickles), " one")});
  }
  return pickles ? pickled(batches, kind) : binary(batches, kind);
}

/// The names of the batches of a split, without the suffix ".bin" of binary batches.
std::vector<std::string> batch_names(CifarKind kind, CifarSplit split) {
  const bool train = split == CifarSplit::kTrain;
  if (kind == CifarKind::kCifar100) return {train ? "train" : "test"};
  if (!train) return {"test_batch"};
  return {"data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4",
          "data_batch_5"};
}

std::vector<Batch> folder_batches(const std::filesystem::path& folder,
                                  const std::vector<std::string>& names) {
  std::vector<Batch> batches;
  for (const std::string& name : names) {
    const auto binary_path = folder / (name + ".bin");
    std::error_code code;
    const bool is_binary = std::filesystem::exists(binary_path, code);
    if (!is_binary && !std::filesystem::exists(folder / name, code)) {
      std::string expected;
      for (const std::string& each : names) expected += " " + each;
      throw DataError({.file = folder.string(),
                       .expected = text("the batches", expected,
                                        " in this folder, with or without .bin"),
                       .found = "no " + name});
    }
    batches.push_back(whole_file(is_binary ? binary_path : folder / name));
  }
  return batches;
}

std::vector<Batch> archive_batches(const std::filesystem::path& path,
                                   const std::vector<std::string>& names,
                                   const std::filesystem::path& cache) {
  const auto most = [](std::span<const std::byte>) { return kMostArchive; };
  const Batch archive = whole_file(unpacked(path, cache, most));
  std::vector<Batch> batches(names.size());
  std::vector<std::byte> block(static_cast<std::size_t>(kTarBlock));
  for (std::int64_t at = 0; at + kTarBlock <= archive.size;) {
    archive.file->read(at, block);
    ByteReader reader(block, path.string(), at);
    const auto entry = parse_tar_header(reader);
    if (!entry) break;
    at += kTarBlock;
    if (entry->size > archive.size - at) {
      reader.fail(at, text(entry->size, " bytes of ", quote_bytes(entry->name)),
                  text(archive.size - at, " bytes"));
    }
    std::filesystem::path stem = std::filesystem::path(entry->name).filename();
    if (stem.extension() == ".bin") stem = stem.stem();
    const auto found = std::ranges::find(names, stem.string());
    if (entry->is_file && found != names.end()) {
      batches[static_cast<std::size_t>(found - names.begin())] = {
          archive.file, at, entry->size, FileName(path.string(), entry->name)};
    }
    at += (entry->size + kTarBlock - 1) / kTarBlock * kTarBlock;
  }
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (batches[i].file != nullptr) continue;
    throw DataError({.file = path.string(),
                     .expected = text("a batch '", names[i], "' in the archive"),
                     .found = "none"});
  }
  return batches;
}

}  // namespace

SharedSource cifar_source(const std::vector<std::filesystem::path>& batches,
                          CifarKind kind) {
  std::vector<Batch> files;
  for (const auto& path : batches) files.push_back(whole_file(path));
  return open_batches(files, kind);
}

SharedSource cifar_source(const std::filesystem::path& path, CifarKind kind,
                          CifarSplit split, const std::filesystem::path& cache) {
  const auto names = batch_names(kind, split);
  std::error_code code;
  return open_batches(std::filesystem::is_directory(path, code)
                          ? folder_batches(path, names)
                          : archive_batches(path, names, cache),
                      kind);
}

}  // namespace millstream
