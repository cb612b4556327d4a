#include "millstream/codec/npy.h"

#include "input.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace millstream;
  return accept_or_refuse([&] {
    const auto bytes = static_cast<std::int64_t>(size);
    ByteReader reader(fuzzed(data, size), "fuzzed");
    const ArrayLayout layout = parse_npy(reader, bytes);
    require(layout.shape.rank() > 0);
    require(layout.offset >= 0 && layout.offset + layout.bytes() == bytes);
  });
}
