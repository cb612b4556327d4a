#include "millstream/codec/cifar.h"

#include "input.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace millstream;
  for (const CifarKind kind : {CifarKind::kCifar10, CifarKind::kCifar100}) {
    accept_or_refuse([&] {
      ByteReader reader(fuzzed(data, size), "fuzzed");
      const CifarBatch batch = parse_cifar_pickle(reader, kind);
      const std::int64_t end = batch.offset + batch.images * kCifarImage;
      require(batch.offset >= 0 && end <= static_cast<std::int64_t>(size));
      require(static_cast<std::int64_t>(batch.labels.size()) == batch.images);
    });
  }
  return 0;
}
