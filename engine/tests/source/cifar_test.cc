#include "millstream/source/cifar.h"

#include <gtest/gtest.h>

#include "gzip.h"
#include "millstream/core/error.h"
#include "pickled.h"
#include "source/source_conformance.h"

namespace millstream {
namespace {

constexpr int kRows = 6;  // per batch
constexpr int kBatches = 5;

/// The value of pixel (channel, y, x): a wrong layout gives other values.
char pixel(int image, int channel, int y, int x) {
  return static_cast<char>(image * 37 + channel * 101 + y * 7 + x);
}

std::string planes(int image) {
  std::string bytes;
  for (int c = 0; c < 3; ++c) {
    for (int y = 0; y < 32; ++y) {
      for (int x = 0; x < 32; ++x) bytes += pixel(image, c, y, x);
    }
  }
  return bytes;
}

std::string pixels(int image) {
  std::string bytes;
  for (int y = 0; y < 32; ++y) {
    for (int x = 0; x < 32; ++x) {
      for (int c = 0; c < 3; ++c) bytes += pixel(image, c, y, x);
    }
  }
  return bytes;
}

int fine(int image) { return image * 3 % 10; }
int coarse(int image) { return image % 20; }

std::vector<TrueField> truth(CifarKind kind, int images) {
  TrueField image{{"image", DType::kUint8, {32, 32, 3}}, {}};
  TrueField label{{"label", DType::kUint8, {}}, {}};
  TrueField wide{{"coarse_label", DType::kUint8, {}}, {}};
  for (int i = 0; i < images; ++i) {
    image.bytes += pixels(i);
    label.bytes += static_cast<char>(fine(i));
    wide.bytes += static_cast<char>(coarse(i));
  }
  if (kind == CifarKind::kCifar10) return {image, label};
  return {image, label, wide};
}

std::string binary(CifarKind kind, int begin, int end) {
  std::string bytes;
  for (int i = begin; i < end; ++i) {
    if (kind == CifarKind::kCifar100) bytes += static_cast<char>(coarse(i));
    bytes += static_cast<char>(fine(i)) + planes(i);
  }
  return bytes;
}

std::string pickled(CifarKind kind, int begin, int end, bool text = false) {
  PickledBatch batch;
  std::vector<int> labels;
  std::vector<int> wide;
  for (int i = begin; i < end; ++i) {
    batch.images += planes(i);
    labels.push_back(fine(i));
    wide.push_back(coarse(i));
  }
  if (kind == CifarKind::kCifar10) {
    batch.labels = {{"labels", labels}};
    return text ? batch.python3_protocol2() : batch.protocol2();
  }
  batch.labels = {{"fine_labels", labels}, {"coarse_labels", wide}};
  return batch.protocol5();
}

std::string batch_name(int batch) { return "data_batch_" + std::to_string(batch + 1); }

/// An archive like the published one, with batches out of order and with other entries.
std::string archive(bool binaries) {
  std::string tar = tar_entry("cifar/", "", '5') + tar_entry("cifar/readme.html", "hi");
  for (int b = kBatches - 1; b >= 0; --b) {
    const int begin = b * kRows;
    tar += tar_entry("cifar/" + batch_name(b) + (binaries ? ".bin" : ""),
                     binaries ? binary(CifarKind::kCifar10, begin, begin + kRows)
                              : pickled(CifarKind::kCifar10, begin, begin + kRows));
  }
  return tar + std::string(1024, '\0');
}

using Folder = TemporaryFolder;
constexpr auto kTen = CifarKind::kCifar10;
constexpr auto kHundred = CifarKind::kCifar100;
constexpr auto kTrain = CifarSplit::kTrain;

INSTANTIATE_TEST_SUITE_P(
    Cifar, SourceConformance,
    testing::Values(SourceCase{"Binary", truth(kTen, kRows),
                               [](const Folder& folder) {
                                 return cifar_source(
                                     std::vector<std::filesystem::path>{
                                         folder.write("a.bin", binary(kTen, 0, 2)),
                                         folder.write("b.bin", binary(kTen, 2, kRows))},
                                     kTen);
                               }},
                    SourceCase{"BinaryHundred", truth(kHundred, kRows),
                               [](const Folder& folder) {
                                 folder.write("train.bin", binary(kHundred, 0, kRows));
                                 return cifar_source(folder.path(), kHundred, kTrain);
                               }},
                    SourceCase{"Pickled", truth(kTen, kRows),
                               [](const Folder& folder) {
                                 folder.write("test_batch", pickled(kTen, 0, kRows));
                                 return cifar_source(folder.path(), kTen,
                                                     CifarSplit::kTest);
                               }},
                    SourceCase{"PickledAsText", truth(kTen, kRows),
                               [](const Folder& folder) {
                                 return cifar_source(
                                     std::vector<std::filesystem::path>{
                                         folder.write("a", pickled(kTen, 0, 1)),
                                         folder.write("b", pickled(kTen, 1, 2)),
                                         folder.write("c", pickled(kTen, 2, 4, true)),
                                         folder.write("d", pickled(kTen, 4, kRows))},
                                     kTen);
                               }},
                    SourceCase{"PickledHundred", truth(kHundred, kRows),
                               [](const Folder& folder) {
                                 folder.write("train", pickled(kHundred, 0, kRows));
                                 return cifar_source(folder.path(), kHundred, kTrain);
                               }},
                    SourceCase{"PickledArchive", truth(kTen, kRows* kBatches),
                               [](const Folder& folder) {
                                 return cifar_source(
                                     folder.write("cifar.tar.gz", gzip(archive(false))),
                                     kTen, kTrain, folder.path() / "cache");
                               }},
                    SourceCase{"BinaryArchive", truth(kTen, kRows* kBatches),
                               [](const Folder& folder) {
                                 return cifar_source(
                                     folder.write("cifar.tar", archive(true)), kTen,
                                     kTrain);
                               }}),
    case_name);

TEST(CifarSource, RejectsMissingAndDamagedBatches) {
  const Folder folder;
  const auto tar = folder.write("cifar.tar", archive(false));
  EXPECT_EQ(
      error_of<DataError>([&] { cifar_source(tar, kTen, CifarSplit::kTest); }),
      tar.string() + ": expected a batch 'test_batch' in the archive, found none");
  EXPECT_EQ(error_of<DataError>([&] { cifar_source(folder.path(), kTen, kTrain); }),
            folder.path().string() +
                ": expected the batches data_batch_1 data_batch_2 data_batch_3 "
                "data_batch_4 data_batch_5 in this folder, with or without .bin, "
                "found no data_batch_1");
  const auto broken = folder.write("a.bin", binary(kTen, 0, 2) + "x");
  EXPECT_EQ(error_of<DataError>([&] { cifar_source({broken}, kTen); }),
            broken.string() +
                ": offset 6146: expected whole records of 3073 bytes, found 1 bytes "
                "after 2 records");
  const auto empty = folder.write("empty.bin", "");
  EXPECT_EQ(error_of<DataError>([&] { cifar_source({empty}, kTen); }),
            empty.string() +
                ": offset 0: expected records of 3073 bytes, found an empty batch");
  const auto good = folder.write("b.bin", binary(kTen, 0, 2));
  const auto other = folder.write("c", pickled(kTen, 0, 2));
  EXPECT_EQ(error_of<DataError>([&] {
              cifar_source({good, good, other}, kTen);
            }),
            other.string() + ": offset 0: expected a binary batch like " +
                good.string() + ", found a pickled one");
  const auto cut = folder.write("cut.tar", archive(false).substr(0, 512 * 3 + 1000));
  EXPECT_THROW(cifar_source(cut, kTen, kTrain), DataError);
  const auto packed = folder.write("cifar.tar.gz", gzip(archive(false)));
  EXPECT_THROW(cifar_source(packed, kTen, kTrain), ArgumentError);
  EXPECT_THROW(cifar_source(std::vector<std::filesystem::path>{}, kTen), ArgumentError);
}

TEST(CifarSource, RejectsLabelsOutOfRangeOnRead) {
  const Folder folder;
  const auto message = [](const Source& source, std::int64_t index) {
    Memory memory;
    std::vector<std::byte> image(3072), label(4), coarse(4);
    std::vector<Column> columns = {
        {DType::kUint8, {32, 32, 3}, image.data(), 3072, nullptr},
        {DType::kInt32, {}, label.data(), 4, nullptr},
        {DType::kInt32, {}, coarse.data(), 4, nullptr}};
    return error_of<DataError>([&] {
      const std::int64_t indices[] = {index};
      read_samples(source, indices, std::span(columns).first(source.schema().size()),
                   memory);
    });
  };
  std::string bytes = binary(kTen, 2, kRows);
  bytes[3073] = 10;
  const auto bad = folder.write("b.bin", bytes);
  const SharedSource ten =
      cifar_source({folder.write("a.bin", binary(kTen, 0, 2)), bad}, kTen);
  EXPECT_EQ(message(*ten, 2), "");
  EXPECT_EQ(message(*ten, 3),
            bad.string() +
                ": offset 3073: label: sample 1: expected a value below 10, found 10");

  bytes = binary(kHundred, 0, 2);
  bytes[3074] = 20;
  const auto tar = folder.write(
      "x.tar", tar_entry("cifar/train.bin", bytes) + std::string(1024, '\0'));
  EXPECT_EQ(message(*cifar_source(tar, kHundred, kTrain), 1),
            tar.string() +
                "[cifar/train.bin]: offset 3586: coarse_label: sample 1: expected "
                "a value below 20, found 20");
}

}  // namespace
}  // namespace millstream
